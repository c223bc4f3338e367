"""The commands by name, and the group that imports one only when it is called."""

from __future__ import annotations

from importlib import import_module

import click

SECTIONS: dict[str, dict[str, str]] = {
    "Start here": {
        "dev": "Run everything on this machine: database, server, agent.",
    },
    "Tasks": {
        "run": "Run a command as a task.",
        "submit": "Submit a script, a manifest, or a file full of tasks.",
        "ps": "List tasks, newest first.",
        "show": "Show one task with its attempts.",
        "explain": "Say why a task waits, or runs where it does.",
        "logs": "Print the log of a task.",
        "artifacts": "List the files a task left.",
        "download": "Download files a task left.",
        "change": "Change how long a task may run, or how late it may start.",
        "pause": "Pause tasks; what runs stands still.",
        "resume": "Let paused tasks go on.",
        "cancel": "Cancel tasks.",
        "events": "Print what went otherwise than asked.",
        "wait": "Wait for tasks to finish.",
    },
    "Accounts": {
        "tenant": "Make and change tenants.",
        "plan": "Make and change plans: what tenants may do.",
        "tier": "Make and change tiers: named sizes of tasks.",
        "name": "Pause and resume tasks by their name.",
        "key": "Make and revoke API keys.",
        "node": "List nodes; keep tasks from them.",
        "pool": "Steer, pause and resume pools.",
        "stats": "Show whether pools have enough.",
    },
    "Capacity": {
        "simulate": "Simulate a pool: what would happen with other nodes, tenants or policies.",
    },
    "Parts of a deployment": {
        "server": "Run a server.",
        "agent": "Run the agent of a node.",
        "worker": "Run the functions of an app.",
        "migrate": "Bring a database up to this version.",
        "doctor": "Find out what is wrong on this machine.",
        "version": "Print the version.",
    },
}


class LazyGroup(click.Group):
    """A group whose commands live in modules of the same name: `ps` is headway.cli.ps.command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        found = import_module(f"headway.cli.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and args[0].isidentifier():
            raise click.exceptions.NoSuchCommand(args[0], possibilities=known, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()))


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # 20 ms

        click.echo(version("headway"))
        ctx.exit()


_asks_version = click.Option(
    ["--version"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version.",
)

root = LazyGroup(
    "headway",
    help="Headway runs tasks in time. `headway dev` starts everything on this machine.",
    params=[_asks_version],
    context_settings={"help_option_names": ["-h", "--help"]},
)
