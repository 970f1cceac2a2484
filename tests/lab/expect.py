"""How a check says that something does not hold."""


class Failed(Exception):
    """What was found, and what should have been."""


def expect(holds, text):
    if not holds:
        raise Failed(text)
