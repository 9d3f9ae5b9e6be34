"""Ten days of a restaurant, two orders a day: the memory in use does not grow after the first days."""

import asyncio

from tests.jobs.shop import Shop

from orderbridge import hiding

DAYS, A_DAY = 10, 2


def kept(shop: Shop) -> dict[str, int]:
    """The size of everything that lives as long as the daemon."""
    sizes = {"hidden": sum(map(len, hiding._known.values()))}
    owners: dict[str, object] = {"lanes": shop.lanes, "outbox": shop.outbox, "wire": shop._wire}
    for name, poller in shop.pollers.items():
        account = shop.accounts[name]
        owners |= {f"poller {name}": poller, f"intake {name}": poller.intake, f"account {name}": account}
        owners |= {f"session {name}": account.session, f"client {name}": account.client}
    for owner, one in owners.items():
        for attribute, value in vars(one).items():
            if isinstance(value, dict | list | set | frozenset | tuple | str | bytes):
                sizes[f"{owner}.{attribute}"] = len(value)
    return sizes


async def test_memory_does_not_grow_over_days(shop: Shop):
    sizes = []
    for round_ in range(DAYS * A_DAY):
        order = shop.place()
        await shop.poll()
        rows = [shop.act(action, order) for action in ("accept", "on_the_way", "complete")]
        await shop.drain()
        if round_ % A_DAY == A_DAY - 1:
            sizes.append(kept(shop))
        assert {shop.row(row)["state"] for row in rows} == {"done"}, round_
        await asyncio.sleep(24 * 3600 / A_DAY)
    assert sizes[4] == sizes[-1]  # the tokens of the first days are the ones that a late answer may quote
    assert len(shop.calls("login")) >= DAYS - 1  # and its tokens came and went
