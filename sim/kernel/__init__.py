"""Virtual time: an asyncio event loop that owns the clock, its tasks, and keyed random numbers.

`clock` is the loop, `task` and `event` are what it runs, `random` is where every draw comes from. Where time
stands still, `deadlock` says who waits for what, and `livelock` what goes on for ever in one instant.
"""
