"""From a config.json to the family that runs it.

names        what config.json calls itself -> the module with the family
refused      models that are known and not run, and why
described    a config -> its family, parsed config and layout (`Described`)
"""
