"""One connection of paho on the event loop.

paho's own thread would acknowledge, reconnect and renumber packets beside the loop, and an acknowledgement of an old
connection could hit a new packet. So there is no thread: the loop watches the socket (paho's external loop), and a
connection that has ended is never opened again. Only name look-up, TCP and TLS of the beginning wait in a thread.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from streamad.telemetry.logs import get_logger
from streamad_connectors.kafka.client.credentials import Credentials
from streamad_connectors.mqtt.options import MqttOptions, Place

_CORK = getattr(socket, "TCP_CORK", None)  # Linux
_TICK_S = 1.0
_AT_ONCE = 200  # messages of one turn of the loop
_TAKEN_OVER = 0x8E
_OUR_REASONS = (0x82, 0x8D)  # a protocol error, or nothing came within keep_alive: we end the connection
# MQTT 5, section 3.2.2.2: answers that trying again cannot change.
_REFUSALS = {
    0x81: "it does not read MQTT 5",
    0x84: "it does not speak MQTT 5, which the bridge needs",
    0x85: "it does not take this client_id",
    0x86: "user or password is wrong",
    0x87: "this user may not connect",
    0x8A: "this client is banned",
    0x8C: "it wants another kind of login",
}


class Ended(NamedTuple):
    """Why a connection ended; ``is_final``: trying again cannot help; ``is_told``: broker or protocol say why."""

    text: str
    is_final: bool = False
    is_told: bool = False


class ConnectionFailedError(Exception):
    """Raised when a connection cannot be opened; it carries why."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.text)
        self.ended = ended


async def first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Return once one of ``futures`` is done, or after ``timeout_s``; none is cancelled."""
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


class Connection:
    """A connection to ``place``; ``on_message`` is called with it and each message, in order.

    ``ended`` is done once it has ended. ``acknowledge`` of a connection that has ended does nothing.
    """

    def __init__(
        self,
        place: Place,
        options: MqttOptions,
        credentials: Credentials,
        client_id: str,
        *,
        on_message: Callable[[Connection, mqtt.MQTTMessage], None] | None = None,
        session_expiry_s: int | None = None,
    ) -> None:
        self._place, self._options = place, options
        self._credentials = credentials
        self._session_expiry_s = session_expiry_s
        self._loop = asyncio.get_running_loop()
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5, manual_ack=True, reconnect_on_failure=False
        )
        self._client_id = client_id
        self._on_message = on_message
        self._n_read = 0
        self._is_paused = False
        self._sock: socket.socket | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._connected: asyncio.Future[bool] = self._loop.create_future()
        self._answers: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self.delivered: Callable[[int], None] | None = None
        self.ended: asyncio.Future[Ended] = self._loop.create_future()

    async def open(self) -> bool:
        """Connect; return whether the broker had kept the session. Raises ConnectionFailedError, ConfigError."""
        client = self._client
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._received
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_socket_close = self._on_close
        client.connect_timeout = self._options.connect_timeout / 1e6
        client.max_inflight_messages_set(65_535)
        security = self._options.security
        if security.username is not None:
            password = None if security.password is None else self._credentials.secret("password")
            client.username_pw_set(security.username, password)
        if self._credentials.security.encrypts:
            client.tls_set_context(self._credentials.tls())
        try:
            await asyncio.to_thread(self._connect)
        except (OSError, ValueError) as error:
            raise ConnectionFailedError(
                Ended(self._why(error), isinstance(error, ssl.SSLCertVerificationError))
            ) from None
        found = client.socket()
        assert isinstance(found, socket.socket)
        self._sock = found
        self._loop.add_reader(found, self._readable)
        self._beat()
        try:
            async with asyncio.timeout(client.connect_timeout):
                await first_of(self._connected, self.ended)
        except TimeoutError:
            self.drop()
            raise ConnectionFailedError(Ended(f"{self._at}: no answer within {client.connect_timeout:g} s")) from None
        if not self._connected.done():
            raise ConnectionFailedError(self.ended.result())
        return self._connected.result()

    def _connect(self) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = self._options.receive_maximum
        properties.MaximumPacketSize = self._options.max_packet_size
        if self._session_expiry_s is not None:
            properties.SessionExpiryInterval = self._session_expiry_s
        self._client.connect(
            self._place.host,
            self._place.port,
            keepalive=self._options.keep_alive // 1_000_000,
            clean_start=self._session_expiry_s is None,
            properties=properties,
        )

    async def subscribe(self, asked: Sequence[tuple[str, SubscribeOptions]]) -> list[ReasonCode]:
        """Return the broker's answers. Raises ConnectionFailedError if there is none."""
        _, number = self._client.subscribe(list(asked))
        self._flush()
        if number is None:
            raise ConnectionFailedError(self._end_now())
        answer: asyncio.Future[list[ReasonCode]] = self._loop.create_future()
        self._answers[number] = answer
        await first_of(answer, self.ended, timeout_s=self._client.connect_timeout)
        if answer.done() and len(answer.result()) != len(asked):
            raise ConnectionFailedError(
                self._end_now(f"{self._at}: answers the subscription to another number of topics")
            )
        if answer.done():
            return answer.result()
        raise ConnectionFailedError(self._end_now(f"{self._at}: no answer to the subscription"))

    def publish(self, topic: str, payload: bytes) -> int:
        """Send a message with QoS 1; return its number, with which ``delivered`` is called."""
        number = self._client.publish(topic, payload, qos=1).mid
        self._flush()
        return number

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Acknowledge messages with QoS 1 (PUBACK), in order."""
        if self._sock is None:
            return
        self._cork(1)  # paho writes each packet by itself, and a segment for each takes longer than all else
        for number in numbers:
            self._client.ack(number, 1)
        self._cork(0)
        self._flush()

    def pause(self) -> None:
        """Read nothing more until ``resume``: the broker waits, and in the end this connection times out."""
        self._is_paused = True
        if self._sock is not None:
            self._loop.remove_reader(self._sock)

    def resume(self) -> None:
        """Read again."""
        if self._is_paused and self._sock is not None:
            self._loop.add_reader(self._sock, self._readable)
            self._loop.call_soon(self._readable)  # TLS may have decrypted more than was read
        self._is_paused = False

    def _cork(self, is_on: int) -> None:
        if _CORK is not None and self._sock is not None:
            self._sock.setsockopt(socket.IPPROTO_TCP, _CORK, is_on)

    async def close(self) -> None:
        """Send what waits, disconnect, and keep the session; safe to call twice."""
        if self._sock is not None:
            self._client.disconnect()
            self._flush()
            await asyncio.wait({self.ended}, timeout=_TICK_S)
        self.drop()

    def drop(self) -> None:
        """End the connection at once."""
        if self._sock is not None:
            sock = self._sock
            self._on_close(self._client, None, sock)
            sock.close()
        self._finish(Ended(f"{self._at}: closed"))

    # --- the socket ---

    def _readable(self) -> None:
        """Read messages until none is left, a turn's worth at most: the loop calls again while there is more."""
        if self._is_paused:
            return
        for _ in range(_AT_ONCE):
            before = self._n_read
            try:
                self._client.loop_read()
            except Exception as error:  # noqa: BLE001 - whatever the parsing of a packet that is none raises, for ever
                self._finish(Ended(f"{self._at} sends what is no MQTT ({type(error).__name__})", is_final=True))
                self.drop()
                return
            if self._n_read == before or self._sock is None or self._is_paused:
                break
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() and not self._is_paused:
            self._loop.call_soon(self._readable)  # what TLS has decrypted already, the loop cannot see
        self._flush()

    def _flush(self) -> None:
        """Let the loop write what the socket did not take at once."""
        if self._sock is not None and self._client.want_write():
            self._loop.add_writer(self._sock, self._writable)

    def _writable(self) -> None:
        self._client.loop_write()
        if self._sock is not None and not self._client.want_write():
            self._loop.remove_writer(self._sock)

    def _beat(self) -> None:
        if self._sock is not None:
            self._client.loop_misc()
            self._flush()
            self._tick = self._loop.call_later(_TICK_S, self._beat)

    # --- paho's callbacks ---

    def _on_connect(self, _: Any, __: Any, flags: mqtt.ConnectFlags, reason: ReasonCode, properties: Any) -> None:
        if reason.is_failure:
            why = _REFUSALS.get(reason.value)
            who = f" (user {self._options.security.username})" if reason.value in (0x86, 0x87) else ""
            self._finish(Ended(f"{self._at} refuses: {why or reason}{who}", why is not None))
        elif not self._connected.done():
            kept_s = getattr(properties, "SessionExpiryInterval", None)
            if self._session_expiry_s is not None and kept_s is not None and kept_s < self._session_expiry_s:
                get_logger().warning("the broker keeps the session for less time", seconds=kept_s)
            self._connected.set_result(flags.session_present)

    def _on_disconnect(self, _: Any, __: Any, flags: mqtt.DisconnectFlags, reason: ReasonCode, ___: Any) -> None:
        text = f"{self._at}: the connection ended ({reason})"
        if flags.is_disconnect_packet_from_server and reason.value == _TAKEN_OVER:
            self._finish(self.taken_over)
        self._finish(Ended(text, is_told=flags.is_disconnect_packet_from_server or reason.value in _OUR_REASONS))

    @property
    def taken_over(self) -> Ended:
        """Say that another client has the session now."""
        text = (
            f"{self._at}: another client with the client_id {self._client_id} takes over the session: let one bridge "
            "run, or give each a client_id of its own"
        )
        return Ended(text, is_final=True)

    def _on_close(self, _: Any, __: Any, sock: Any) -> None:
        if self._sock is not None and sock is not None:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
        self._sock = None
        if self._tick is not None:
            self._tick.cancel()

    def _received(self, _: Any, __: Any, message: mqtt.MQTTMessage) -> None:
        self._n_read += 1
        if self._on_message is not None:
            self._on_message(self, message)

    def _on_subscribe(self, _: Any, __: Any, number: int, reasons: list[ReasonCode], ___: Any) -> None:
        if (answer := self._answers.pop(number, None)) is not None and not answer.done():
            answer.set_result(reasons)

    def _on_publish(self, _: Any, __: Any, number: int, reason: ReasonCode, ___: Any) -> None:
        if reason.is_failure:
            self._finish(Ended(f"{self._at} refuses a message: {reason}", is_final=True))
        elif self.delivered is not None:
            self.delivered(number)

    # --- words ---

    @property
    def _at(self) -> str:
        return f"mqtt {self._place}"

    def _finish(self, ended: Ended) -> None:
        if not self.ended.done():
            self.ended.set_result(ended)

    def _end_now(self, text: str = "") -> Ended:
        self._finish(Ended(text or f"{self._at}: the connection ended"))
        return self.ended.result()

    def _why(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{self._at}: its certificate is not trusted ({error.verify_message}): see security.ca_file"
        if self._credentials.security.encrypts and isinstance(error, ssl.SSLError | ConnectionResetError):
            why = getattr(error, "reason", None) or "it closes the connection"
            return f"{self._at}: no TLS there, or it wants a certificate ({why}): mqtt:// does not encrypt"
        if isinstance(error, TimeoutError):
            return f"{self._at}: no answer within {self._client.connect_timeout:g} s"
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"{self._at}: cannot be reached ({why})"
