"""The building blocks of settings in scenario files.

`units` reads and writes quantities such as "20 ms". `quantities` has them as types of fields. `base` has the
class that all settings derive from and its errors. `tables` has tables in several kinds and short forms of
them, `members` lists and groups of clients and servers.

After validation every quantity is a plain number in SI units. Client numbers start at 0.
"""
