"""How clients learn who is there: `kinds` has what a scenario may choose."""
