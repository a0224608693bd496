"""Writes the dashboards: `python dashboards/grafana/generate.py`. Each panel's queries and unit stand here."""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("dashboards")
RUNBOOK = "/public/balajoin/operations.md"  # docs/ as docker-compose.yml mounts it into Grafana
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GRAFANA_SCHEMA = 41
COLUMNS = 24

Json = dict[str, Any]
Steps = tuple[tuple[float | None, str], ...]


def anchor(heading: str) -> str:
    """The anchor that Markdown viewers make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def of_joins(metric: str, labels: str = "") -> str:
    return f'{metric}{{join=~"$join"{labels}}}'


def rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({of_joins(metric)}[$__rate_interval]))"


def increase(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase({of_joins(metric)}[$__rate_interval]))"


def total(metric: str, by: str, labels: str = "") -> str:
    return f"sum by ({by}) ({of_joins(metric, labels)})"


def quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', 'join, le')})"


def by_policy(value: str) -> str:
    return f"({value}) * on (join, instance) group_left (policy) balajoin_join_info"


def busiest(by: str) -> str:
    rows = rate("balajoin_node_rows_total", f"{by}, node")
    return f"max by ({by}) ({rows}) / avg by ({by}) ({rows})"


def below(orange: float, red: float) -> Steps:
    """Green below the first, red from the second on."""
    return ((None, "green"), (orange, "orange"), (red, "red"))


# --- panels -----------------------------------------------------------------------------------------------------------


@dataclass
class Panel:
    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Expression and legend."""

    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    steps: Steps = ((None, "green"),)
    stacked: bool = False
    format: str = "time_series"
    bounds: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)

    def to_json(self, number: int, x: int, y: int) -> Json:
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "links": [{"title": "Runbook", "url": f"{RUNBOOK}#{anchor(self.title)}", "targetBlank": True}],
            "fieldConfig": {"defaults": self._defaults(), "overrides": LIMITS if self.kind == "timeseries" else []},
            "options": self.options,
            "targets": [self._target(*query, ref) for query, ref in zip(self.queries, "ABCDEF", strict=False)],
        }

    def _defaults(self) -> Json:
        steps = [{"color": color, "value": value} for value, color in self.steps]
        defaults = {
            "unit": self.unit,
            "thresholds": {"mode": "absolute", "steps": steps},
            "color": {"mode": "palette-classic" if self.kind == "timeseries" else "thresholds"},
            **self.bounds,
        }
        if self.kind == "timeseries":
            defaults["custom"] = {
                "drawStyle": "line",
                "fillOpacity": 30 if self.stacked else 8,
                "lineWidth": 1,
                "showPoints": "never",
                "spanNulls": True,
                "stacking": {"group": "A", "mode": "normal" if self.stacked else "none"},
                "thresholdsStyle": {"mode": "line" if len(self.steps) > 1 else "off"},
            }
        return defaults

    def _target(self, expression: str, legend: str, ref: str) -> Json:
        instant = self.kind in ("stat", "table")
        return {
            "refId": ref,
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": expression,
            "legendFormat": legend,
            "format": self.format,
            "instant": instant,
            "range": not instant,
        }


LIMITS = [
    {
        "matcher": {"id": "byRegexp", "options": "/limit/"},
        "properties": [
            {"id": "custom.lineStyle", "value": {"dash": [8, 8], "fill": "dash"}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "color", "value": {"fixedColor": "red", "mode": "fixed"}},
        ],
    }
]
RATIO = {"min": 0, "max": 1}
COUNT = {"min": 0, "decimals": 0}
FROM_ZERO = {"min": 0}


def lines(title: str, description: str, unit: str, *queries: tuple[str, str], **more: Any) -> Panel:
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel(title, description, unit, queries, options=options, **more)


def number(title: str, description: str, unit: str, expression: str, **more: Any) -> Panel:
    options = {
        "colorMode": "value",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    }
    return Panel(
        title, description, unit, ((expression, "{{join}}"),), kind="stat", width=4, height=4, options=options, **more
    )


def heatmap(title: str, description: str, unit: str, query: tuple[str, str], **more: Any) -> Panel:
    options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": unit},
        "color": {"exponent": 0.5, "mode": "scheme", "scale": "exponential", "scheme": "Oranges", "steps": 64},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left"},
    }
    return Panel(title, description, unit, (query,), kind="heatmap", options=options, **more)


# --- what they show ---------------------------------------------------------------------------------------------------

ROWS_S, SECONDS, SHARE, BYTES, PLAIN = "rowsps", "s", "percentunit", "bytes", "short"

OVERVIEW: dict[str, list[Panel]] = {
    "Now": [
        number(
            "Rows in", "Records of both streams read per second.", ROWS_S, rate("balajoin_input_rows_total", "join")
        ),
        number("Results", "Joined rows written per second.", ROWS_S, rate("balajoin_output_rows_total", "join")),
        number(
            "Batch, 95th percentile",
            "19 of 20 batches end within this time.",
            SECONDS,
            quantile(0.95, "balajoin_batch_duration_seconds"),
            steps=below(10, 60),
        ),
        number(
            "Balance B",
            "(max − min) / max of skewed rows by node. Orange is above the default ε.",
            SHARE,
            of_joins("balajoin_balance_ratio"),
            steps=below(0.2, 0.5),
            bounds=RATIO,
        ),
        number(
            "Unread records",
            "Unread records of the input topics when the last batch began.",
            PLAIN,
            total("balajoin_input_lag_records", "join", ', stream=~"probe|build"'),
            steps=below(100_000, 1_000_000),
        ),
        number(
            "Since last progress",
            "An idle join shows every ten seconds that it is alive.",
            SECONDS,
            f"time() - {of_joins('balajoin_last_progress_timestamp_seconds')}",
            steps=below(60, 600),
        ),
    ],
    "Work": [
        lines(
            "Throughput",
            "Records read by stream, and results.",
            ROWS_S,
            (rate("balajoin_input_rows_total", "join, stream"), "{{join}} {{stream}}"),
            (rate("balajoin_output_rows_total", "join"), "{{join}} results"),
        ),
        lines(
            "Batch time",
            "A result of a skewed key may come one batch later.",
            SECONDS,
            (quantile(0.5, "balajoin_batch_duration_seconds"), "{{join}} median"),
            (quantile(0.95, "balajoin_batch_duration_seconds"), "{{join}} 95 %"),
            (quantile(0.99, "balajoin_batch_duration_seconds"), "{{join}} 99 %"),
            steps=below(10, 60),
        ),
        lines(
            "Time by phase",
            "What Spark spends a batch's time on, as a share of all time.",
            SHARE,
            (rate("balajoin_batch_phase_seconds_total", "phase"), "{{phase}}"),
            stacked=True,
        ),
    ],
    "Balance and traffic": [
        lines(
            "B against ε",
            "B of what the policy balances, the limit that is set, and how much the busiest node has above the mean.",
            SHARE,
            (of_joins("balajoin_balance_ratio"), "{{join}} B"),
            (of_joins("balajoin_balance_limit_ratio"), "{{join}} limit ε"),
            (of_joins("balajoin_work_excess_ratio"), "{{join}} busiest node's work above the mean"),
            bounds=RATIO,
        ),
        lines(
            "Rows per node",
            "Rows that each node got per second, by all routes. Lines close together mean balance.",
            ROWS_S,
            (rate("balajoin_node_rows_total", "join, node"), "{{join}} node {{node}}"),
        ),
        lines(
            "Traffic by kind",
            "Bytes that left the node they were on. Fetched: sent to a router from another machine that read them.",
            "Bps",
            (rate("balajoin_traffic_bytes_total", "kind"), "{{kind}}"),
            stacked=True,
        ),
    ],
    "Time and state": [
        lines(
            "Input lag",
            "Unread records when the last batch began. Each batch reads the join's own topics to their end.",
            PLAIN,
            (total("balajoin_input_lag_records", "join, stream"), "{{join}} {{stream}}"),
            bounds=FROM_ZERO,
        ),
        lines(
            "Watermark lag",
            "How far event time is behind the clock. It is at least the allowed lateness.",
            SECONDS,
            (f"time() - {of_joins('balajoin_watermark_timestamp_seconds')}", "{{join}} {{stream}}"),
        ),
        lines(
            "Late rows and dead letters",
            "Late rows are joined with what is still there. Dead letters have no key or no time.",
            ROWS_S,
            (rate("balajoin_late_rows_total", "join, stream"), "{{join}} {{stream}} late"),
            (rate("balajoin_dead_letters_total", "join, stream"), "{{join}} {{stream}} dead"),
        ),
        lines(
            "State rows",
            "Rows that the nodes store, replicas among them.",
            PLAIN,
            (total("balajoin_state_rows", "join"), "{{join}}"),
            bounds=FROM_ZERO,
        ),
        lines(
            "Rows without a match yet",
            "Rows of outer and anti joins that become results of their own unless a match comes.",
            PLAIN,
            (total("balajoin_waiting_rows", "join"), "{{join}}"),
            bounds=FROM_ZERO,
        ),
        lines(
            "State size",
            "Bytes that each node stores, uncompressed.",
            BYTES,
            (of_joins("balajoin_state_bytes"), "{{join}} node {{node}}"),
            stacked=True,
        ),
        lines(
            "Records that should not be",
            "Foreign and stale records on the join's own topics, late shipments, and pulls that came too late.",
            PLAIN,
            (increase("balajoin_skipped_records_total", "join, reason"), "{{join}} {{reason}}"),
            (increase("balajoin_delayed_shipments_total", "join"), "{{join}} delayed"),
            (increase("balajoin_incomplete_pulls_total", "join"), "{{join}} incomplete"),
            steps=((None, "green"), (1, "red")),
        ),
    ],
    "Machines": [
        lines(
            "Executors",
            "Spark executors that the join has.",
            PLAIN,
            (of_joins("balajoin_executors"), "{{join}}"),
            bounds=COUNT,
        ),
        lines(
            "Node work",
            "CPU time of each node's join work, as a share of one core.",
            SHARE,
            (rate("balajoin_node_busy_seconds_total", "join, node"), "{{join}} node {{node}}"),
            bounds=FROM_ZERO,
        ),
        Panel(
            "What runs",
            "Policy, topics and versions of each join.",
            PLAIN,
            (
                (
                    f"{of_joins('balajoin_join_info')} * on (join, instance) "
                    "group_left (version, pyspark, python) balajoin_build_info",
                    "",
                ),
            ),
            kind="table",
            format="table",
            options={"cellHeight": "sm", "showHeader": True},
        ),
    ],
}

SKEW: dict[str, list[Panel]] = {
    "Balance": [
        heatmap(
            "Rows per node as heatmap",
            "Rows that each node got per second. An even band means balance, a dark line is a hot node.",
            ROWS_S,
            (rate("balajoin_node_rows_total", "node"), "node {{node}}"),
            width=12,
        ),
        lines(
            "Rows by route",
            "Probe rows sent by hash (home), probe rows of skewed keys, build rows, and replicas.",
            ROWS_S,
            (rate("balajoin_node_rows_total", "join, route"), "{{join}} {{route}}"),
            stacked=True,
            width=12,
        ),
        lines(
            "B of each source",
            "Each source keeps its own B below ε, and so the B of all sources is below ε too.",
            SHARE,
            (of_joins("balajoin_source_balance_ratio"), "{{join}} source {{source}}"),
            (of_joins("balajoin_balance_limit_ratio"), "{{join}} limit ε"),
            bounds=RATIO,
            width=12,
        ),
        lines(
            "Busiest node",
            "Rows of the busiest node, as a multiple of the mean. 1 is even.",
            PLAIN,
            (busiest("join"), "{{join}}"),
            steps=below(1.5, 2),
            bounds={"min": 1},
            width=12,
        ),
    ],
    "Hot keys": [
        lines(
            "Share of hot keys",
            "Share of recent probe rows of the ten most frequent keys, by the key's hash.",
            SHARE,
            (of_joins("balajoin_hot_key_share_ratio"), "{{join}} {{key}}"),
            bounds=FROM_ZERO,
        ),
        lines(
            "Nodes of hot keys",
            "|U(x)|: over how many nodes a key's probe rows are spread.",
            PLAIN,
            (of_joins("balajoin_hot_key_nodes"), "{{join}} {{key}}"),
            bounds=COUNT,
        ),
        lines(
            "Skewed keys",
            "How many keys are above the threshold now.",
            PLAIN,
            (of_joins("balajoin_hot_keys"), "{{join}}"),
            bounds=COUNT,
        ),
    ],
    "Signals and pulls": [
        lines(
            "Signals",
            "Requests for build rows, and pulls, per second. Repeated requests mean that an answer was lost.",
            "cps",
            (rate("balajoin_signals_total", "join, kind"), "{{join}} {{kind}}"),
            (rate("balajoin_pulls_total", "join"), "{{join}} pulls"),
        ),
        lines(
            "Pull latency",
            "How much later a result comes because its build rows had to be pulled.",
            SECONDS,
            (quantile(0.5, "balajoin_pull_wait_seconds"), "{{join}} median"),
            (quantile(0.95, "balajoin_pull_wait_seconds"), "{{join}} 95 %"),
            steps=below(30, 120),
        ),
        heatmap(
            "Pull latency in batches",
            "Batches that probe rows waited for build rows. One is normal.",
            PLAIN,
            (increase("balajoin_pull_wait_batches_bucket", "le"), "{{le}}"),
            format="heatmap",
        ),
        lines(
            "Replica rows",
            "Build rows sent to other nodes: pulled at once, or forwarded as they came.",
            ROWS_S,
            (rate("balajoin_pulled_rows_total", "join"), "{{join}} pulled"),
            (rate("balajoin_forwarded_rows_total", "join"), "{{join}} forwarded"),
            stacked=True,
        ),
        lines(
            "Leases",
            "Promises to forward a key's build rows to another node.",
            PLAIN,
            (total("balajoin_leases", "join"), "{{join}}"),
            bounds=COUNT,
        ),
        lines(
            "Waiting keys",
            "Keys whose probe rows wait for build rows. A wait of more than two batches is trouble.",
            PLAIN,
            (total("balajoin_pins", "join"), "{{join}}"),
            bounds=COUNT,
        ),
    ],
    "Policies compared": [
        lines(
            "Busiest node by policy",
            "For joins that run side by side: the busiest node's rows, as a multiple of the mean.",
            PLAIN,
            (by_policy(busiest("join, instance")), "{{policy}} ({{join}})"),
            bounds={"min": 1},
        ),
        lines(
            "Bytes per row by policy",
            "What balance costs: bytes sent to other nodes for each row read.",
            BYTES,
            (
                by_policy(
                    f"{rate('balajoin_traffic_bytes_total', 'join, instance')} "
                    f"/ {rate('balajoin_input_rows_total', 'join, instance')}"
                ),
                "{{policy}} ({{join}})",
            ),
            bounds=FROM_ZERO,
        ),
        lines(
            "Throughput by policy",
            "Rows read a second.",
            ROWS_S,
            (by_policy(rate("balajoin_input_rows_total", "join, instance")), "{{policy}} ({{join}})"),
            bounds=FROM_ZERO,
        ),
    ],
}

# --- dashboards -------------------------------------------------------------------------------------------------------


def placed(rows: dict[str, list[Panel]]) -> list[Json]:
    """Places panels row by row, each row below its heading, from left to right."""
    found: list[Json] = []
    y = 0
    for heading, panels in rows.items():
        at = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        found.append(
            {"id": len(found) + 1, "type": "row", "title": heading, "collapsed": False, "gridPos": at, "panels": []}
        )
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + panel.height
            found.append(panel.to_json(len(found) + 1, x, y))
            x += panel.width
        y += panels[-1].height
    return found


def dashboard(name: str, description: str, other: str, rows: dict[str, list[Panel]]) -> Json:
    restarts = f"{of_joins('balajoin_start_timestamp_seconds')} * 1000"
    joins = "label_values(balajoin_join_info, join)"
    return {
        "uid": f"balajoin-{name}",
        "title": f"balajoin: {name}",
        "description": description,
        "tags": ["balajoin"],
        "schemaVersion": GRAFANA_SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {
            "list": [
                {
                    "name": "Restarts",
                    "datasource": SOURCE,
                    "enable": True,
                    "expr": restarts,
                    "iconColor": "purple",
                    "textFormat": "{{instance}}",
                    "titleFormat": "{{join}} started",
                    "useValueForTime": True,
                }
            ]
        },
        "links": [
            {
                "title": other,
                "type": "link",
                "icon": "dashboard",
                "url": f"/d/balajoin-{other}",
                "keepTime": True,
                "includeVars": True,
            },
            {"title": "Runbook", "type": "link", "icon": "doc", "url": RUNBOOK, "targetBlank": True},
        ],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "join",
                    "label": "Join",
                    "type": "query",
                    "datasource": SOURCE,
                    "definition": joins,
                    "query": {"query": joins, "refId": "join"},
                    "refresh": 2,
                    "sort": 1,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": placed(rows),
    }


DASHBOARDS = {
    "overview": dashboard("overview", "Throughput, latency, balance, traffic, lag and state.", "skew", OVERVIEW),
    "skew": dashboard("skew", "Where rows go, which keys are hot, and what spreading them costs.", "overview", SKEW),
}


def written(content: Json) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    for name, content in DASHBOARDS.items():
        (FOLDER / f"{name}.json").write_text(written(content), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
