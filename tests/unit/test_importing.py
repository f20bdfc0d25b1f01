import gc

from fedcome_ray.importing import large_modules


def test_nothing_is_collected_while_modules_are_imported() -> None:
    with large_modules():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_collects_by_himself_goes_on_to_do_so() -> None:
    gc.disable()
    try:
        with large_modules():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_imported_is_old_and_can_be_seen() -> None:
    with large_modules():
        made = [[number] for number in range(10_000)]
    assert len(gc.get_objects(generation=0)) < len(made)
    # As Hypothesis does when it is imported; nothing would be seen among what is frozen.
    assert any(found is made for found in gc.get_referrers(made[0]))


def test_what_others_have_frozen_stays_frozen() -> None:
    made = [[number] for number in range(10)]
    gc.freeze()
    try:
        with large_modules():
            pass
        assert not any(found is made for found in gc.get_objects())
    finally:
        gc.unfreeze()
    assert any(found is made for found in gc.get_objects())
