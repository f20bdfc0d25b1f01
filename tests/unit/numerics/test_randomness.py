import numpy as np
import pytest
import torch

from fedcome_ray.numerics.randomness import (
    Stream,
    client_keys,
    dropout_mask,
    fold,
    generator,
    random_bits,
)

CLIENTS = torch.arange(200)


def test_a_clients_key_does_not_depend_on_its_company() -> None:
    keys = client_keys(1, Stream.BATCHES, 2, CLIENTS)
    assert torch.equal(client_keys(1, Stream.BATCHES, 2, CLIENTS[[7, 3]]), keys[[7, 3]])


@pytest.mark.parametrize(
    "other", [(2, Stream.BATCHES, 2), (1, Stream.DROPOUT, 2), (1, Stream.BATCHES, 3)]
)
def test_seed_stream_and_round_give_other_keys(other) -> None:
    keys = client_keys(1, Stream.BATCHES, 2, CLIENTS)
    assert not set(keys.tolist()) & set(client_keys(*other, CLIENTS).tolist())


def test_keys_and_their_folds_are_distinct() -> None:
    keys = client_keys(0, Stream.BATCHES, 0, CLIENTS)
    folded = fold(keys.unsqueeze(-1), torch.arange(50))
    assert len(set(folded.flatten().tolist()) | set(keys.tolist())) == 200 * 51
    for number in range(50):
        assert torch.equal(folded[:, number], fold(keys, number))
    assert torch.equal(fold(keys, torch.tensor(2**40)), fold(keys, 2**40))


def test_bits_are_those_of_the_published_generator() -> None:
    """SplitMix64 seeded with 1234567, as listed at https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64."""
    expected = np.array(
        [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431],
        dtype=np.uint64,
    )
    bits = random_bits(torch.tensor([1234567]), 4)[0].numpy().view(np.uint64)
    np.testing.assert_array_equal(bits, expected)


def test_a_longer_draw_begins_like_a_shorter_one() -> None:
    keys = client_keys(0, Stream.DROPOUT, 0, CLIENTS[:3])
    assert torch.equal(random_bits(keys, 9)[:, :5], random_bits(keys, 5))
    assert torch.equal(dropout_mask(keys, 9, 0.3)[:, :5], dropout_mask(keys, 5, 0.3))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_dropout_mask_drops_at_its_rate_and_keeps_the_mean(rate) -> None:
    mask = dropout_mask(client_keys(0, Stream.DROPOUT, 0, CLIENTS[:4]), 100_000, rate)
    torch.testing.assert_close(mask.unique(), torch.tensor([0, 1 / (1 - rate)]))
    # Standard error of 400,000 draws: below 0.001 of the share kept.
    assert (mask == 0).float().mean().item() == pytest.approx(rate, abs=0.004)
    neighbours = (mask[:, 1:] == 0) & (mask[:, :-1] == 0)
    assert neighbours.float().mean().item() == pytest.approx(rate**2, abs=0.004)


def test_generators_differ_by_stream() -> None:
    draws = {generator(0, stream).integers(2**60) for stream in Stream}
    assert len(draws) == len(Stream)
