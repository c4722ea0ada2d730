"""Virtual time: an asyncio event loop that owns the clock, its tasks, and keyed random numbers.

`clock` is the loop, `task` and `event` are its entries, `random` is the source of every draw. If no event is
left, `deadlock` names the waiting tasks; `livelock` detects tasks that run forever at one virtual time.
"""
