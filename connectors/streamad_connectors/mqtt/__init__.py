"""MQTT 5: what a broker's topics hold for the bridge, and a feed that publishes."""

from __future__ import annotations

__all__ = ["MqttFeed", "MqttInlet", "MqttsFeed", "MqttsInlet"]

from streamad_connectors.mqtt.feed import MqttFeed, MqttsFeed
from streamad_connectors.mqtt.inlet import MqttInlet, MqttsInlet
