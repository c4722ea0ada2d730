"""Scenario files: loading, overrides, checks, error messages, and documentation.

`scenario` loads a file: `reading` finds and parses it, `overrides` applies --set and --unset, `plugin_tables`
and `protocol_lookup` load the user's code, `protocol_errors` reports errors in that code, `cross_checks`
compares the sections, and `refusals` phrases the errors. `resolved` writes a scenario with all settings,
`shared_prefix` compares two scenarios. `schema` and `editor_schema` document every key. `sections` contains
one file for each section.
"""
