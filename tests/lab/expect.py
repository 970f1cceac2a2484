"""The exception with which a check fails."""


class Failed(Exception):
    """The found value, and the expected one."""


def expect(holds, text):
    if not holds:
        raise Failed(text)
