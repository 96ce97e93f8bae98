import sys,collections
from playwright.sync_api import sync_playwright
exec(open('/tmp/h22p/slide.py').read().split('with sync_playwright')[0])
with sync_playwright() as d:
    b=d.chromium.launch(executable_path='/usr/bin/chromium',args=['--no-sandbox','--disable-gpu'])
    for f in sys.argv[1:]:
        p=b.new_page(viewport={'width':1400,'height':1000}); p.goto('file://'+f); p.wait_for_function("globalThis.pellucid?.model.colours !== undefined"); p.wait_for_timeout(1500)
        c=p.context.new_cdp_session(p); c.send('Profiler.enable'); c.send('Profiler.setSamplingInterval',{'interval':500}); c.send('Profiler.start')
        p.evaluate(SLIDE,'cross'); r=c.send('Profiler.stop')['profile']
        t=collections.Counter(); nodes={n['id']:n for n in r['nodes']}
        for s,dt in zip(r['samples'],r['timeDeltas']): n=nodes[s]['callFrame']; t[(n['functionName'],n['lineNumber'],n['columnNumber'])]+=dt
        tot=sum(t.values()); print(f[-10:],tot/1e6); [print('  ',k,round(v/60/1000,2),'ms/frame') for k,v in t.most_common(14)]
        p.close()
    b.close()
