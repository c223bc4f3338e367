"""How the report looks, on white and on black, on a screen and on paper."""

from __future__ import annotations

STYLE = """
:root{--paper:#f6f7f9;--panel:#fff;--ink:#1b2330;--soft:#5d6878;--line:#e3e7ed;--bad:#c8334a;
--c0:#2f6fde;--c1:#1f9d8a;--c2:#e39b1d;--c3:#d5445b;--c4:#8257c9;--c5:#5b7083;--c6:#b5651d;--c7:#3aa4d8}
@media(prefers-color-scheme:dark){:root{--paper:#12161c;--panel:#1a2029;--ink:#e8ecf2;--soft:#98a4b5;--line:#2b3340;
--bad:#ff7186;--c0:#6ea1ff;--c1:#4fcab5;--c2:#f2bb55;--c3:#ff7a8e;--c4:#b394f0;--c5:#9db0c2;--c6:#dd9a5b;--c7:#74c9f2}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
main{max-width:1320px;margin:0 auto;padding:36px 28px 60px}
h1{font-size:34px;line-height:1.15;margin:0;letter-spacing:-.02em;text-transform:capitalize}
h2{font-size:15px;margin:0;font-weight:650}
.kind{margin:0 0 4px;color:var(--c0);font-weight:650;font-size:13px;letter-spacing:.04em}
.about{max-width:78ch;color:var(--soft);margin:10px 0 16px}
.warning{color:var(--bad);font-weight:650}
ul{list-style:none;margin:0;padding:0}
.chips{display:flex;flex-wrap:wrap;gap:8px}
.chips li{background:var(--panel);border:1px solid var(--line);border-radius:99px;padding:3px 13px;font-size:13px}
.chips b{color:var(--soft);font-weight:500;margin-right:4px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin:26px 0 14px}
.card,.panel{background:var(--panel);border:1px solid var(--line);border-radius:12px;padding:16px 18px}
.card h2{color:var(--soft);font-weight:550;font-size:13px}
.card p{margin:0;color:var(--soft);font-size:13px}
.card .big{font-size:30px;font-weight:650;letter-spacing:-.02em;color:var(--ink);line-height:1.3;
font-variant-numeric:tabular-nums}
.card.bad .big{color:var(--bad)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(520px,100%),1fr));gap:14px;margin:14px 0}
.panel{margin:0}
.panel.wide{margin:14px 0}
.panel>p{margin:0 0 8px;color:var(--soft);font-size:13px}
.panel.wide h2{margin-bottom:10px}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:11.5px;fill:var(--soft);font-variant-numeric:tabular-nums}
.grid{stroke:var(--line)}
.base,.tick{stroke:var(--soft);opacity:.55}
.l{fill:none;stroke-width:1.8;stroke-linejoin:round}
.a{opacity:.13}
.b{opacity:.9}
.tip{fill:transparent;pointer-events:all}
.tip:hover{fill:var(--soft);opacity:.16}
.shade{fill:var(--bad);opacity:.09}
svg .note{fill:var(--bad)}
.legend{display:flex;flex-wrap:wrap;gap:3px 16px;margin-top:8px;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:550}
th:first-child,td:first-child{text-align:left;padding-left:0;font-weight:600}
tr:last-child td{border-bottom:0}
footer{color:var(--soft);font-size:13px;margin-top:18px;max-width:100ch}
@media print{body{background:#fff}.card,.panel{break-inside:avoid}}
""" + "".join(
    f".l.c{n}{{stroke:var(--c{n})}}.a.c{n},.b.c{n}{{fill:var(--c{n})}}i.c{n}{{background:var(--c{n})}}"
    for n in range(8)
)
