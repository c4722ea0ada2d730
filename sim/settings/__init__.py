"""The settings of a scenario file, one module for each of its sections.

After validation every quantity is a plain number in SI units. Client numbers start at 0.
"""
