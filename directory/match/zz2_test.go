package match
import ("testing";"math";"fmt";"agentgw/directory";"slices";"strings";"hash/fnv";"sort")
type V struct{ k, b, off, pow, pair float64 }
func (v V) conf(qt []queryTerm, qp []queryTerm, has map[string]weighted, length int, pc map[string]int) float64 {
 num,den:=0.,0.
 wt:=map[string]float64{}
 for _,t:=range qt { g:=math.Pow(max(t.bg-v.off,0),v.pow); wt[t.text]=g; den+=g
  if w,ok:=has[t.text]; ok { f:=float64(w.weight); num+=g*f/(f+v.k*(1-v.b+v.b*float64(length)/250)) } }
 if v.pair>0 { pn,pd:=0.,0.; for _,p:=range qp { a,b,_:=strings.Cut(p.text," "); g:=(wt[a]+wt[b])/2; pd+=g; if pc[p.text]>0 {pn+=g} }
  if pd>0 { num+=v.pair*den*pn/pd } ; num/=1 }
 return num/den }
func TestZZ2(t *testing.T){
 vs:=[]V{{10,.5,0,1,.3},{10,.5,0,1,.5},{10,.5,0,1,.8},{10,.7,0,1,.5},{15,.7,0,1,.5}}
 for _,set:=range []struct{n string; splits string}{{"metatool","train"},{"sealtools","dev"},{"stabletoolbench","G1_instruction G1_category G1_tool"},{"livemcpbench","test"}}{
  var xs [3]Index; var cs [3][]directory.Capability
  for _,r:=range load("/work/shared/data/"+set.n+"/corpus.jsonl"){ key:=r.ID; if r.Server!=""{key=r.Server}; h:=fnv.New32(); h.Write([]byte(key)); i:=h.Sum32()%3
   cs[i]=append(cs[i],directory.Capability{AIC:r.ID,Provider:r.ID,CapID:r.ID,SkillID:"s",Name:r.Name,Description:r.Description,Tags:[]string{r.Category}}) }
  for i:=range xs{xs[i].Load(cs[i])}
  hit5:=make([]float64,len(vs)); hit1:=make([]float64,len(vs)); pos:=make([][]float64,len(vs)); neg:=make([][]float64,len(vs)); n:=0.
  for i,r:=range load("/work/shared/data/"+set.n+"/queries.jsonl"){ if !slices.Contains(strings.Fields(set.splits),r.Split){continue}
   if set.n=="metatool" && i%10!=0 {continue}
   if set.n=="sealtools" && !strings.Contains(r.ID,"easy") {continue}
   l:=queryTerms(r.Text); qt,qp:=readTerms(l),readPairs(l); n++
   type cand struct{c directory.Candidate; s float64}
   for vi,v:=range vs {
   var all []cand; best:=[2]float64{-1,-1}
   for g:=range xs { for _,c:=range xs[g].Resolve(Query{Text:r.Text,Limit:5}) { has,length,pc:=bag(&c.Capability); s:=v.conf(qt,qp,has,length,pc); all=append(all,cand{c,s})
     gi:=0; if slices.Contains(r.Gold,c.AIC){gi=1}; best[gi]=max(best[gi],s) } }
   sort.SliceStable(all,func(i,j int)bool{return all[i].s>all[j].s})
   h1,h5:=0.,0.; for i,c:=range all[:min(5,len(all))]{ if slices.Contains(r.Gold,c.c.AIC){h5=1; if i==0{h1=1}}}
   hit1[vi]+=h1; hit5[vi]+=h5
   if best[1]>=0 {pos[vi]=append(pos[vi],best[1])} ; neg[vi]=append(neg[vi],max(best[0],0)) } }
  fmt.Println(set.n,n)
  for vi,v:=range vs { fmt.Printf("  %v hit1 %.1f hit5 %.1f auroc %.3f pos q25 %.3f q50 %.3f neg q50 %.3f q75 %.3f q90 %.3f\n",v,100*hit1[vi]/n,100*hit5[vi]/n,auroc(pos[vi],neg[vi]),q(pos[vi],.25),q(pos[vi],.5),q(neg[vi],.5),q(neg[vi],.75),q(neg[vi],.9)) }
 }}
