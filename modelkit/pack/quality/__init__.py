"""Bits where they matter: which format each matrix gets, so that a model of a given size predicts best.

    source_check  which sources formats can be searched for
    parts         target and draft of a package whose formats are to be found
    allocate      options with bytes and costs, and a budget -> one option each (pure)
    options       a plan's matrices in groups that share a format, and what each format takes
    reading       the model in floats (`float_model`) and its texts: those of a file (`text_file`), or its own
                  (`own_texts`)
    sensitivity what each format of each group costs
    search      the model read, its text written, costs found, formats chosen, and what came of it measured
    student     the model as it would be stored, compared with its source and tuned
    drafts      a draft's format, so that the pair is fastest
    report      the file that a package keeps of that: `quality.json`
    plot        and its picture, `quality.svg`

Relies on `runtime.quality` for every number. Nothing here runs unless a target or `auto` is asked for.
"""
