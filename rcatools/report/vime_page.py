"""The page's section of vime-decode: products, graphs and hazards, each with its device."""

from __future__ import annotations

from rcatools.report import vime, vime_findings, vime_products
from rcatools.report.sections import Builder, Section, folded
from rcatools.report.table import to_html

SHOWN_ROWS = (8, 64)


def sections(builder: Builder) -> list[Section]:
    """Products and hazards, from the tables and recordings beside the investigation."""
    extras = vime_findings.load_extras(str(builder.document["investigation"]))
    made = []
    if extras.product is not None:
        blocks = [builder.figure(vime_products.product_forest(extras.product, rows)) for rows in SHOWN_ROWS]
        blocks += [
            builder.figure(vime_products.single_changes(extras.product, rows)) for rows in (16, SHOWN_ROWS[1])
        ]
        blocks.append(builder.figure(vime_products.token_bars(extras.product)))
        blocks.append(to_html(vime_products.work_table(extras.product, SHOWN_ROWS)))
        for table in (vime_products.product_cells(extras.product), vime_products.equality(extras.product)):
            blocks.append(folded(table.title, table))
        assembly = vime_products.assembly(extras.assembly)
        blocks.append(folded(assembly.title, assembly))
        device = extras.product.recording.manifest.device.get("name")
        made.append(
            Section(
                "products",
                "Decode products",
                f"Which tile configuration is faster, and why? Measured on {device}.",
                (),
                [block for block in blocks if block],
            )
        )
    tables = (vime.hazards(extras.all_hazards()), vime.captures(extras.graphs), vime.replays(extras.graphs))
    made.append(
        Section(
            "hazards",
            "Hazards and graphs",
            "Which findings of the review do harm, and which forms does a graph take?",
            (),
            [to_html(table) for table in tables if table.rows],
        )
    )
    return made
