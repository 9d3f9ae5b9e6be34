"""Waiting for a descriptor without a thread and without a clock that ticks meanwhile."""

import asyncio


async def readable(descriptor: int, within_s: float) -> bool:
    """Whether there is something to read, as soon as there is; what it is stays where it is. False: the time is over."""
    there = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, there.set)
    try:
        async with asyncio.timeout(within_s):
            await there.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True
