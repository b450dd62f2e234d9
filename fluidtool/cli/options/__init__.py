"""What commands are asked with: every option that several commands have is declared once, as an annotated type.

    def check(model: ModelPath, json: Json = False, batch: Batch = None) -> None: ...

A command that says it in other words writes them beside it: `Annotated[Json, Changed(help="...")]`.
"""
