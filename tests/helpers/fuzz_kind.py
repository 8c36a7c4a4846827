"""The registry of `helpers.fuzz`: kinds of input, each a function that makes one and reads it."""

KINDS = {}


class Kind:
    """A kind of input: the function draws one and reads it; `state` is for what all its inputs share."""

    def __init__(self, function, weight):
        self.function, self.weight, self.state = function, weight, {}

    def attempt(self, folder, draw):
        self.function(folder, draw, self.state)


def kind(weight=10):
    """Register an attempt; the weight is its share of the inputs."""

    def register(function):
        KINDS[function.__name__] = Kind(function, weight)
        return function

    return register


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
