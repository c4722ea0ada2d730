"""Scenario files: read, overridden, checked, refused in words, and documented.

`scenario` loads one. On the way `reading` finds and parses the file, `overrides` applies --set and --unset,
`plugin_tables` and `protocol_lookup` load the user's code, `protocol_errors` says what is wrong with it,
`cross_checks` compares the sections. `refusals` puts what is wrong into words. `resolved` writes a scenario
again, `shared_prefix` compares two. `schema` and `editor_schema` document every key. `sections`
has one file for each section.
"""
