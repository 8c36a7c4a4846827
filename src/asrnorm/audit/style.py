"""What the page of an audit adds to the style of all pages."""

STYLE = """
:root { --c0: #0072B2; --c1: #D55E00; --rule: #e4e4e4; }
@media (prefers-color-scheme: dark) { :root { --c0: #56B4E9; --c1: #E69F00; --rule: #2e2e2e; } }
.chart { display: block; width: 100%; font: 11px system-ui, sans-serif; }
.chart text { fill: var(--faint); } .chart .rule { stroke: var(--rule); } .chart .line { fill: none; stroke-width: 2; }
.chart .ideal { stroke: var(--faint); stroke-dasharray: 4 4; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); }
.dot.c0, .bar.c0 { fill: var(--c0); } .dot.c1, .bar.c1 { fill: var(--c1); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .3rem 0; font-size: .88rem; }
.key { display: inline-block; width: 1.1rem; height: 0; border-top: 3px solid; margin-right: .4rem;
       vertical-align: middle; }
.key.c0 { border-color: var(--c0); } .key.c1 { border-color: var(--c1); } .key.dashed { border-top-style: dashed; }
.wide { max-width: 36rem; }
.panels { display: grid; gap: .8rem 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 10rem), 1fr)); }
.panels h4 { margin: 0 0 .2rem; font-size: .9rem; font-weight: 600; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
h4 small { display: block; }
h3 small, h4 small { color: var(--faint); font-weight: normal; }
.gallery { display: grid; gap: .7rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); }
.tile { margin: 0; } .tile div { display: grid; grid-template-columns: 1fr 1fr; gap: 3px; }
.tile img { width: 100%; aspect-ratio: 1; object-fit: cover; } .pixels { image-rendering: pixelated; }
.tile figcaption { font-size: .82rem; color: var(--faint); overflow-wrap: anywhere; } .tile b { color: var(--ink); }
tr.group th { text-align: left; padding-top: 1rem; color: var(--faint); font-weight: 600; }
tr.sum td { font-weight: 600; }
td.who, th.who { text-align: left; } td.absent { text-align: left; color: var(--faint); }
p.warn { border-left: 4px solid var(--c1); padding: .4rem .8rem; background: var(--mark); }
td:first-child { white-space: normal; min-width: 6rem; } td.who { white-space: normal; min-width: 10rem; }
table { margin-top: .6rem; }
@media (max-width: 30rem) { table { font-size: .84rem; } th, td { padding: .3rem .45rem; } }
h1, p, li { overflow-wrap: anywhere; }
"""
