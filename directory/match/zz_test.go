package match
import ("testing";"os";"strings";"encoding/json";"bufio";"math";"sort";"fmt";"agentgw/directory";"slices")
type rec struct{ID,Name,Description,Category,Extra,Text,Split,Server string; Gold []string}
func load(p string) (out []rec){ f,_:=os.Open(p); s:=bufio.NewScanner(f); s.Buffer(nil,1<<26); for s.Scan(){var r rec; json.Unmarshal(s.Bytes(),&r); out=append(out,r)}; return}
func auroc(pos,neg []float64) float64 { type x struct{v float64;p bool}; var l []x; for _,v:=range pos{l=append(l,x{v,true})}; for _,v:=range neg{l=append(l,x{v,false})}
 sort.Slice(l,func(i,j int)bool{return l[i].v<l[j].v}); n:=0.; for i:=0;i<len(l);{ j:=i; for j<len(l)&&l[j].v==l[i].v{j++}; np,nn:=0.,0.; for _,e:=range l[i:j]{if e.p{np++}else{nn++}}
 below:=0.; _=below; n+=np*nn/2; for _,e:=range l[:i]{ if !e.p {n+=np} }; i=j}; return n/float64(len(pos))/float64(len(neg))}
func q(l []float64,f float64) float64 { l=slices.Clone(l); sort.Float64s(l); return l[int(f*float64(len(l)-1))]}
func TestZZ(t *testing.T){
 for _,set:=range []struct{n string; splits string; dev bool}{{"metatool","test",false},{"metatool","multi",false},{"sealtools","test_in_domain test_out_domain",false},{"stabletoolbench","G2_instruction G2_category G3_instruction",false},{"livemcpbench","test",false},{"metatool","train",true},{"sealtools","dev",true},{"stabletoolbench","G1_instruction G1_category G1_tool",true}}{
  var x Index; var caps []directory.Capability
  for _,r:=range load("/work/shared/data/"+set.n+"/corpus.jsonl"){ c:=directory.Capability{AIC:r.ID,Provider:r.ID,CapID:r.ID,SkillID:"s",Name:r.Name,Description:r.Description,Tags:[]string{r.Category},Examples:[]string{r.Extra}}; caps=append(caps,c)}
  x.Load(caps)
  var nd,a1,n float64; var pos,neg []float64
  for i,r:=range load("/work/shared/data/"+set.n+"/queries.jsonl"){ if !slices.Contains(strings.Fields(set.splits),r.Split){continue}
   if set.dev && set.n=="metatool" && i%10!=0 {continue}
   got:=x.Resolve(Query{Text:r.Text,Limit:10}); n++
   d:=0.; for i,c:=range got{ if slices.Contains(r.Gold,c.AIC){d+=1/math.Log2(float64(i+2)); if i==0{a1++}}}
   ideal:=0.; for i:=range min(len(r.Gold),10){ideal+=1/math.Log2(float64(i+2))}; nd+=d/ideal
   if set.dev { top:=func(c []directory.Candidate) float64 { if len(c)==0{return 0}; m:=0.; for _,e:=range c[:min(5,len(c))] {m=max(m,float64(e.Confidence))}; return m}
    pos=append(pos,top(got)); neg=append(neg,top(x.Resolve(Query{Text:r.Text,Limit:10,Exclude:r.Gold,Accept:func(c *directory.Capability)bool{h:=0; for _,b:=range []byte(c.AIC[:min(6,len(c.AIC))]){h=h*31+int(b)}; return h%3!=0}}))) }
  }
  fmt.Printf("%s %s n=%v acc1 %.2f ndcg %.2f\n",set.n,set.splits,n,100*a1/n,100*nd/n)
  if set.dev { fmt.Printf("   auroc %.3f pos q10 %.0f q25 %.0f q50 %.0f  neg q50 %.0f q75 %.0f q90 %.0f\n",auroc(pos,neg),q(pos,.1),q(pos,.25),q(pos,.5),q(neg,.5),q(neg,.75),q(neg,.9))}
 }}
