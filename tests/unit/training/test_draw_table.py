import torch

from asrnorm.training.batches import DrawTable

CPU = torch.device("cpu")


def row(number):
    return {
        "rows": torch.arange(5) + number,
        "flip": torch.arange(3) == number,
        "factors": torch.full((2, 3), number / 3, dtype=torch.float64),
        "rate": torch.tensor(number / 7, dtype=torch.float32),
        "nothing": torch.zeros(0, 2),
    }


def test_every_row_comes_back_as_it_was_window_after_window():
    table = DrawTable(row(0), 4, CPU)
    for first, count in ((0, 4), (4, 2), (6, 4), (10, 1)):
        rows = [row(first + number) for number in range(count)]
        table.write(rows)
        for number, expected in enumerate(rows):
            found = table.read(torch.tensor([number]))
            assert list(found) == list(expected)
            for name, value in expected.items():
                assert found[name].dtype == value.dtype
                assert torch.equal(found[name], value), name


def test_a_step_that_draws_nothing_has_an_empty_row():
    table = DrawTable({}, 2, CPU)
    table.write([{}, {}])
    assert len(table) == 2
    assert table.read(torch.tensor([1])) == {}
