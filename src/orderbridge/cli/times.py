"""Times for people: in the zone of the restaurant, and how long ago."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from orderbridge.texts import say

MINUTE, HOUR, DAY = 60, 3600, 86400
AHEAD = timedelta(seconds=2)  # of our clock: a server's may be so much ahead


def local(moment: datetime, zone: ZoneInfo, now: datetime) -> str:
    """The time of day; with the date when it is not within half a day."""
    form = "%H:%M:%S" if abs(now - moment) < timedelta(hours=12) else "%Y-%m-%d %H:%M"
    return f"{moment.astimezone(zone):{form}}"


def ago(moment: datetime, now: datetime) -> str:
    """How long ago, roughly. What is ahead is said to be: a clock was set."""
    if moment > now + AHEAD:
        return say("status.ahead", span=_span(moment - now))
    return say("status.ago", span=_span(now - moment))


def _span(length: timedelta) -> str:
    seconds = max(round(length.total_seconds()), 0)
    for unit, key in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {say(f'status.{key}')}"
    return f"{seconds} {say('status.seconds')}"
