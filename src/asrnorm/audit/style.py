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
.wide { max-width: 44rem; }
.panels { display: grid; gap: .8rem 1.2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); }
.panels h4 { margin: 0 0 .2rem; font-size: .9rem; font-weight: 600; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
h3 small, h4 small { color: var(--faint); font-weight: normal; }
.gallery { display: grid; gap: .7rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); }
.tile { margin: 0; } .tile div { display: grid; grid-template-columns: 1fr 1fr; gap: 3px; }
.tile img { width: 100%; aspect-ratio: 1; object-fit: cover; } .pixels { image-rendering: pixelated; }
.tile figcaption { font-size: .82rem; color: var(--faint); overflow-wrap: anywhere; } .tile b { color: var(--ink); }
tr.group th { text-align: left; padding-top: 1rem; color: var(--faint); font-weight: 600; }
td.who { text-align: left; } td.absent { text-align: left; color: var(--faint); }
p.warn { border-left: 4px solid var(--c1); padding: .4rem .8rem; background: var(--mark); }
h1, p, li { overflow-wrap: anywhere; }
"""
