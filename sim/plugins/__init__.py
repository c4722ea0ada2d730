"""The user's own code in a scenario: what may be one's own, how it is found, called and refused."""
