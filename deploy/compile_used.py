"""Compiles only the modules that the program imports, since half of the installed files are never loaded."""

import contextlib
import importlib
import pkgutil

import alembic.command  # noqa: F401
import uvicorn.lifespan.off
import uvicorn.loops.asyncio
import uvicorn.protocols.http.h11_impl  # noqa: F401
from sqlalchemy import create_engine, exc

import orderbridge
import orderbridge_board
import orderbridge_certify
import orderbridge_fleet
import orderbridge_sandbox

for package in (orderbridge, orderbridge_board, orderbridge_certify, orderbridge_fleet, orderbridge_sandbox):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
for url in ("sqlite://", "postgresql+psycopg://127.0.0.1:1/x", "mysql+pymysql://127.0.0.1:1/x"):
    with contextlib.suppress(exc.DBAPIError):
        create_engine(url).connect().close()
