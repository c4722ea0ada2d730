"""A hook that counts lost messages."""

import coterie


class Losses(coterie.RunHook):
    """Counter of lost messages by receiver."""

    def __init__(self):
        self.lost = {}

    def message(self, event, time_s, envelope, message_type, size_bytes, detail, number):
        if event == "lost":
            self.lost[envelope.receiver] = self.lost.get(envelope.receiver, 0) + 1
