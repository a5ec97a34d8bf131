"""From a recipe to a stored package: inventory -> plan -> check -> write.

    pulling                 what an address names becomes a package
    sources, origins        what FROM and DRAFT point at, opened; how a package remembers it
    inheritance, formats    what the Modelfile says, over what comes with the model; how weights are stored
    accept, tying           is this a model that runs, and which one; is a stored output head a copy
    prepare, preparation    everything decided and checked, nothing written; what comes of that
    part                    one model of a package: the target, or the draft
    planning                which tensor gets which format, and the files that will hold it
    quality                 formats chosen by what they cost
    adapters                adapters placed in the network, or fused into weights
    checks, draft, copies   what a package must hold up to; what a draft must
    writing                 rows of tensors to the bytes of a package
    build, metadata         the package, all or nothing; its modelkit.json
    licenses, authors, pooling, dense, languages, ollama_template  what comes with a model besides weights
    run_check, model_setup  does a stored package run here; what an answer needs besides weights
    file_errors             the system's errors about files, in words of ours
Export: `gguf`, `mlx_folder`, `mlx_lm`.

Doors: `build.build`, or `prepare.prepare` and then `build.write_package`. Everything up to `prepare` is pure
or only reads headers; MLX is imported by `writing`, and with the runtime's records of families and its check
of shapes.
"""
