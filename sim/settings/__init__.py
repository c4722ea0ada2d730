"""What keys are made of: lists and groups of clients, shares, tables that may be written as plain values.

After validation every quantity is a plain number in SI units. Client numbers start at 0.
"""
