"""Parts of an event loop besides time and tasks: unhandled errors, open generators, refused methods."""

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, NoReturn

ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

_log = logging.getLogger(__name__)


def _unsupported_method(what: str, why: str) -> Any:
    """Return a method that raises NotImplementedError with the reason why a virtual loop lacks it."""

    def refused(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(f"a virtual loop has no {what}: {why}")

    return refused


class BareLoop(asyncio.AbstractEventLoop):
    """Parts of a virtual loop that do not concern time.

    It refuses, with the reason, all methods with which the outside world could change the order of events.
    """

    def __init__(self) -> None:
        self._closed = False
        self._failure: BaseException | None = None  # an unhandled error, not raised yet
        self._interrupted = True  # the run must check for stops, errors and observers
        self._exception_handler: ExceptionHandler | None = None
        self._generators: weakref.WeakValueDictionary[int, AsyncGenerator[Any, Any]] = (
            weakref.WeakValueDictionary()
        )

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        """Pass unhandled errors to `handler(loop, context)`; None: they end the run."""
        self._exception_handler = handler

    def get_exception_handler(self) -> ExceptionHandler | None:
        return self._exception_handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Handle an unhandled error of a plain callback, or of a task that is not awaited."""
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """End the run with the error; log it if the loop is closed or an earlier error is pending."""
        error = context.get("exception") or RuntimeError(f"{context['message']} ({context.get('task')})")
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return  # already raised by the run; asyncio also reports its task
        if self._closed or self._failure is not None:
            _log.error("%s", context["message"], exc_info=error)
        else:
            self._failure, self._interrupted = error, True

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the loop. An error that no run has raised is logged."""
        self._closed = True
        if self._failure is not None:
            _log.error("an error after the last run", exc_info=self._failure)
            self._failure = None

    get_debug = bool  # bool() is False; the fastest form, as every new future calls it

    async def shutdown_asyncgens(self) -> None:
        """Close the asynchronous generators that are still open, in the order of their first use."""
        unfinished = list(self._generators.values())
        self._generators.clear()
        for generator in unfinished:
            await generator.aclose()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there are no threads."""

    def _generator_started(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[id(generator)] = generator

    def _generator_abandoned(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.call_soon(self.create_task, generator.aclose())

    def _refuse_closed(self) -> NoReturn:
        raise RuntimeError("Event loop is closed")

    run_in_executor = set_default_executor = getaddrinfo = getnameinfo = _unsupported_method(
        "threads", "the end of a thread has no virtual time; call the function directly"
    )
    create_connection = create_server = create_unix_connection = create_unix_server = _unsupported_method(
        "connections", "the arrival of bytes has no virtual time; send messages through a transport"
    )
    connect_accepted_socket = create_datagram_endpoint = start_tls = sendfile = create_connection
    connect_read_pipe = connect_write_pipe = create_connection
    add_reader = remove_reader = add_writer = remove_writer = create_connection
    sock_recv = sock_recv_into = sock_recvfrom = sock_recvfrom_into = create_connection
    sock_sendall = sock_sendto = sock_sendfile = sock_connect = sock_accept = create_connection
    subprocess_shell = subprocess_exec = _unsupported_method("subprocesses", "their end has no virtual time")
    add_signal_handler = remove_signal_handler = _unsupported_method(
        "signal handlers", "a signal has no virtual time; a handler of the signal module may call stop()"
    )
    set_debug = _unsupported_method("debug mode", "it measures callbacks in wall-clock time")
    set_task_factory = get_task_factory = _unsupported_method("task factory", "wrap the coroutine instead")
