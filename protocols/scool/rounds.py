"""SCooL in rounds: a client asks its peers, and goes on once all have answered, whatever messages are lost.

A question, or an answer, that was lost is asked for again as soon as it is overdue, as models are in
`protocols.shared.rounds`; what it brings is the same then. A question waits for who has yet to train in its
round.
"""

from __future__ import annotations

from dataclasses import replace

from protocols.framework.vectors import Vector
from protocols.scool.consulting import Consulting
from protocols.scool.messages import Consultation, ConsultationWanted, Opinion, OpinionWanted
from protocols.shared.rounds import delay_s


class ConsultingRounds(Consulting):
    """A client that waits in each round for what those say that it has asked."""

    collected = (Opinion,)

    async def run(self) -> None:
        self.questions: dict[str, Consultation] = {}  # of this round
        self.answers: dict[str, Opinion] = {}  # the last one to each peer
        self.answering: dict[str, int] = {}  # the round of the last question of each peer
        await super().run()

    async def ask_all(self, model: Vector | None) -> None:
        """Ask those that this client talks to, and wait for all answers."""
        number, began_s = self.round, self.now
        names = self.asked_now()
        self.questions = {peer: self.question(peer, model) for peer in names}
        for peer, question in self.questions.items():
            self.tell(peer, question)

        def is_current(opinion: Opinion) -> bool:
            return opinion.answers == number

        opinions = await self.collect(
            Opinion,
            names,
            timeout=self.settings.patience,
            where=is_current,
            reminder=OpinionWanted(number),
        )
        usual_s = self.round_trips.usual_s(names, Opinion)
        self.delayed = delay_s(opinions.values(), self.now - began_s - usual_s)
        self.discard(Opinion, lambda opinion: opinion.answers <= number)
        self.questions.clear()
        for peer in names:
            if peer in opinions:
                self.note(peer, opinions[peer])
                self.known[peer].rests = 0  # it may be finished, and judges models all the same
            elif self.is_peer(peer):
                self.suspect(peer)

    async def on_message(self, message: object, sender: str) -> object:
        if self.settings.mode == "synchronous":
            match message:
                case Consultation():
                    self.asked(message, sender)
                    return None
                case OpinionWanted(number, attempt):
                    self.reminded(sender, number, attempt)
                    return None
                case ConsultationWanted(number):
                    question = self.questions.get(sender)
                    if question is not None and question.round == number:
                        self.tell(sender, replace(question, repeated=True))
                    return None
        return await super().on_message(message, sender)

    def asked(self, question: Consultation, sender: str) -> None:
        """Answer a question once."""
        if self.answering.get(sender) == question.round:
            return
        self.answering[sender] = question.round
        if sender in self.left:  # of others it hears with their answers, which are of one round
            self.listen(sender, question.beliefs)
        if question.round > self.round + 1:
            self.round = question.round  # the others went on without this client
        self.spawn(self.answer_in_round(question, sender))

    async def answer_in_round(self, question: Consultation, sender: str) -> None:
        """Tell a peer what this client makes of its model, once it has come as far as that."""
        number = question.round
        while not self.finished and self.published[-1].round < number:
            await self.news.wait()
        fitting = [each for each in self.published if each.round == number]
        latest = (fitting or self.published)[-1]
        if self.finished and not fitting:  # it takes part in any round, with what it has
            latest = replace(latest, progress=self.own_share(), round=max(latest.round, number))
        opinion = await self.opinion(question, sender, latest)
        self.answers[sender] = opinion
        self.tell(sender, replace(opinion, repeated=question.repeated))

    def reminded(self, sender: str, number: int, attempt: int) -> None:
        """A peer waits for an answer: it, or the question, was lost, or it takes its time."""
        self.round_trips.lossy = True
        answer = self.answers.get(sender)
        if answer is not None and answer.answers == number:
            self.tell(sender, replace(answer, repeated=True, attempt=attempt))
        elif self.answering.get(sender) != number:
            self.tell(sender, ConsultationWanted(number))

    def peer_changed(self, peer: str, up: bool) -> None:
        super().peer_changed(peer, up)
        if not up:
            self.answers.pop(peer, None)
            self.answering.pop(peer, None)
