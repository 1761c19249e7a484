"""Readers that wait for a log to move: threads that block, and callbacks.

A log moves when an append becomes visible, when the high watermark or the last stable offset advances, and
when the log is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["Subscription", "Waiters"]

_LOGGER_NAME: Final = "stratalog.subscriptions"


class Subscription:
    """A callback that is called when a log moves, until ``cancel`` is called."""

    def __init__(self, waiters: Waiters, callback: Callable[[], object]) -> None:
        self._waiters = waiters
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """End the subscription, also from within the callback, or twice. A call that another thread has
        begun may still be in progress when this returns."""
        self._callback = None
        self._waiters.unsubscribe(self)

    def call(self) -> None:
        """Call the callback. What it raises is logged, also SystemExit and KeyboardInterrupt: the thread that
        appends is in the middle of a change, which would fail the log."""
        callback = self._callback
        if callback is None:
            return
        try:
            callback()
        except BaseException:
            import logging  # not at the top: it takes a tenth of the command line's start-up time

            logging.getLogger(_LOGGER_NAME).exception("a callback of a log that moved has failed")


class Waiters:
    """The threads and callbacks that wait for one log. While there are none, ``count`` is 0 and an append
    pays for nothing but looking at it."""

    def __init__(self) -> None:
        self._moved = threading.Condition(threading.Lock())
        self._threads = 0
        # In the order of subscription.
        self._subscriptions: dict[Subscription, None] = {}
        #: How many threads and subscriptions there are.
        self.count = 0

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait until ``is_there``, which is asked after every move, returns True or the time is over."""
        with self._moved:
            self._threads += 1
            self.count += 1
            try:
                self._moved.wait_for(is_there, timeout_s)
            finally:
                self._threads -= 1
                self.count -= 1

    def subscribe(self, callback: Callable[[], object]) -> Subscription:
        """Call ``callback`` at every move from now on; see ``PartitionLog.subscribe``."""
        subscription = Subscription(self, callback)
        with self._moved:
            self._subscriptions[subscription] = None
            self.count += 1
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscription, if it is there."""
        with self._moved:
            if subscription in self._subscriptions:
                del self._subscriptions[subscription]
                self.count -= 1

    def wake(self) -> None:
        """Wake the threads and call the callbacks: the log has moved."""
        with self._moved:
            if self._threads:
                self._moved.notify_all()
            subscriptions = list(self._subscriptions)
        for each in subscriptions:
            each.call()
