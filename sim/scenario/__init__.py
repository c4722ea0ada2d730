"""Scenario files: read, overridden, checked, refused in words, and documented.

`scenario` is what comes of one; `reading`, `overrides`, `checks` and `limits` are the way there, `refusals`
what is said of a bad one. `schema`, `editor_schema` and `reference` document every key. `protocol_loader`,
`protocol_modules`, `protocol_checks` and `sources` find the class that a scenario names, and its files.
"""
