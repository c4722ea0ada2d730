"""Messages that must arrive: questions and messages of rounds are told again, and handled once."""
