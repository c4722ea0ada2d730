"""Building blocks of settings in scenario files.

`units` parses and formats quantities such as "20 ms". `quantities` defines types of fields for them. `base`
defines the base class of all settings and its errors. `tables` defines tables that come in several kinds and
their short forms, `members` lists and groups of clients and servers.

After validation every quantity is a plain number in SI units. Client numbers start at 0.
"""
