"""Tells people and programs of alerts: filters, digests, webhooks, mail and chats."""
