"""From a recipe to a stored package: inventory -> plan -> check -> write.

    sources      what FROM and DRAFT point at, opened
    policy       which tensor gets which format, and why; `families` asks the record of the model's family
    experts      source tensors -> matrices under MLX's names
    outputs      a decision -> the tensors written for it
    plan         all of it together, as one value (`planned`); `config` is the config.json that goes with it
    checks       what a package must hold up to; `draft`: tokens and rows
    prepare      everything decided and checked, nothing written
    write        streams a planned file; `reader`, `transform` and `fp4` do the work on rows
    conversion   weights copied, converted, or remembered from an earlier time
    build        the package, all or nothing; `metadata` is its modelkit.json, `licenses` its license texts

Doors: `build.build`, or `prepare.prepare` and then `build.write_package`. Everything up to `prepare` is
pure or only reads headers; MLX is imported by `transform` and `fp4`, and with the runtime's records of
families and its check of shapes.
"""
