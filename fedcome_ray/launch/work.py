"""What a launch has to do, in words."""

from fedcome_ray.launch.request import Finished


def words_of(before: Finished) -> str:
    """What there is to do: `10 finished, 2 go on at round 41, 44 to run`."""
    stopped = len(before.request.trials) - len(before.results) - len(before.pending)
    counts = {
        "finished": len(before.results),
        "stopped early before": stopped,
        goes_on(list(before.begun.values())): len(before.begun),
        "to run": len(before.pending) - len(before.begun),
    }
    if len(before.pending) - len(before.begun) == len(before.request.trials):
        return f"{len(before.pending)} trials to run"
    return ", ".join(f"{count} {words}" for words, count in counts.items() if count)


def goes_on(rounds_done: list[int]) -> str:
    """At which rounds trials go on."""
    if not rounds_done:
        return ""
    first, last = min(rounds_done) + 1, max(rounds_done) + 1
    where = f"round {first}" if first == last else f"rounds {first} to {last}"
    return f"go on at {where}" if len(rounds_done) > 1 else f"goes on at {where}"
