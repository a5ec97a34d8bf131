"""A JSON schema, rewritten so that it says the same in words that a grammar can be made of.

pipeline                 all steps, in their order
unenforced               what no grammar holds, left out and told
dialects                 the words of OpenAPI 3.0, of older drafts and of Gemini
identifiers              `$id`, `$anchor`, `$dynamicRef`: as references into the schema
definitions              references into the middle of a schema: as references to definitions
circular_references      references in a circle beside which something stands
cases                    what a value may be, case by case: conjunctions
negation                 the cases of a schema, and of what does not fit it
excluded_values          `not` of listed values: as patterns and bounds of all others
keywords                 which type a keyword is of, and what does not keep it
conditions               if, then, else, not, contains, dependentRequired, dependentSchemas
one_of                   oneOf, minProperties, maxProperties
unevaluated              unevaluatedProperties, unevaluatedItems
pattern_properties       patternProperties of which one name may fit several
property_names           propertyNames
unique_items             uniqueItems
format_patterns          patterns beside formats, as zod writes them
unsatisfiable            definitions of which no value is
"""
