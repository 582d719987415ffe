"""``streamad notify``: tells people and programs of alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamad.commands.shared.console import (
    ConfigOption,
    JsonOption,
    err,
    note,
    out,
    print_json,
    run_async,
    stop_on_signals,
    styled,
)
from streamad.commands.shared.plants import load_plant, located, need_notify
from streamad.errors import ConfigError
from streamad.outputs.reading import place_of
from streamad.plant import Plant


def notify(
    config: ConfigOption = Path("plant.yaml"),
    test: Annotated[
        bool, typer.Option("--test", help="Send one test notice to each receiver, say what came back, and end.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Send a notice of each alert to the receivers that notify.receivers names: webhooks, mail, Teams, Slack.

    A process of its own beside the monitor: it follows the alerts that the monitor writes, and what a receiver does to
    it holds no monitor up. Each receiver has its own position, which moves on once it has a notice: each alert reaches
    it at least once, and comes again only after a kill. A failed notice is tried again; if it is given up, the log says
    so. Ctrl-C ends it after what is being sent.

    ```yaml
    notify:                                    # in plant.yaml
      link: https://streamad.plant.example     # the page, for a link in each notice
      receivers:
        - name: mes
          url: https://mes.plant.example/hooks/streamad
          secret: {file: notify.secret}        # openssl rand -base64 32 > notify.secret
          on: [alerts, warnings]               # warnings: of sequences that still run
        - name: shift-desk
          apprise: {file: mail.secret}         # mailtos://USER:PASSWORD@plant.example?to=shift@plant.example
          digest: 10m                          # at most one mail in ten minutes
    ```

    Examples: streamad notify --test; streamad notify
    """
    need_notify()
    from streamad.notify.service import Notifier  # noqa: PLC0415 - an extra

    plant = load_plant(config)
    is_delivered = True

    async def work() -> None:
        nonlocal is_delivered
        try:
            notifier = Notifier(plant)
        except ConfigError as error:
            raise ConfigError(located(error.problems), source=str(config)) from None
        if test:
            answers = await notifier.test()
            is_delivered = all(answer.delivered for answer in answers)
            for answer in answers:
                if as_json:
                    print_json(answer)
                    continue
                mark = ("ok      ", "green") if answer.delivered else ("failed  ", "bold red")
                where = "" if not answer.delivered else f"{answer.place}: "
                out.print(styled(mark, f" {answer.receiver}  {where}{answer.answer}"))
            return
        _say_missing(plant)
        who = ", ".join(f"{receiver.name} ({place})" for receiver, place in notifier.places)
        err.print(f"notices of alerts go to {who}; Ctrl-C ends")
        with stop_on_signals(notifier.stop, "finishing what is being sent"):
            await notifier.run()

    run_async(work())
    if not is_delivered:
        raise typer.Exit(1)


def _say_missing(plant: Plant) -> None:
    """Note what notices lack."""
    if place_of(plant, "attributions") is None:
        err.print(note("notices have no reasons: sinks.attributions is not written to a file or topic"))
    if plant.settings.notify.link is None:
        err.print(note("notices have no link: set notify.link to the address of the page (streamad web)"))
