"""A hook that counts lost messages."""

import coterie


class Losses(coterie.RunHook):
    """Counter of lost messages by receiver."""

    def __init__(self):
        self.lost = {}

    def message(self, event):
        if event.kind == "lost":
            receiver = event.envelope.receiver
            self.lost[receiver] = self.lost.get(receiver, 0) + 1
