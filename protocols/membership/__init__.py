"""How clients learn who is there: each one's view of the others.

`view` is what every kind has, and the kind whose clients say hello and goodbye; `swim` finds the dead by
pings, `cyclon` keeps a random sample of all clients, and `active` has the views that come of the two.
"""
