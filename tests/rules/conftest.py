"""A busy machine is no failed property: hypothesis measures no time here."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
