#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include "simgrid.h"
static qdr_machine mk(int per_node,int adapters,double rate){
 qdr_machine m={.version=1}; m.version=QDR_OPTS_INIT; strcpy(m.name,"ref"); m.ranks_per_node=per_node; m.memory_bytes=1e12;m.memory_bytes_per_sec=2e12;m.memory_efficiency=1;
 m.n_units=1;m.wave_power=1;m.bf16=(qdr_machine_products){300e12,0.7,0,0,0,{1,1,1},1};m.f32=m.bf16;m.f64=m.f32; m.attention_efficiency=.5;
 m.n_links=2; m.links[0]=(qdr_machine_link){"a",per_node,200e9,0,0,1e-6,0,0}; m.links[1]=(qdr_machine_link){"b",0,0,adapters,rate,10e-6,0,0};
 m.collectives=(qdr_machine_collectives){5e-6,0,0,1,{{1,1}}}; m.software.launch_secs=4e-6;m.software.fused_biases=1; return m;}
int main(int c,char**v){
 int x=atoi(v[1]),y=atoi(v[2]),z=atoi(v[3]),d=atoi(v[4]); int lay=atoi(v[6]),per=atoi(v[7]),ad=atoi(v[8]);double rate=atof(v[9])*1e9; int seqs=atoi(v[10]), msg=atoi(v[11]);
 qdr_machine m=mk(per,ad,rate);
 qdr_network n; if(qdr_network_load(c>12?v[12]:"gpt3-6.7b",&n)){printf("%s\n",qdr_last_error());return 1;}
 qdr_plan p={.version=QDR_OPTS_INIT,.x=x,.y=y,.z=z,.d=d,.layout=lay,.dtype=QDR_BF16,.batch=(int64_t)z*d*seqs}; strcpy(p.order,v[5]);
 referee_list l[4]; if(referee_lists_make(&m,&n,&p,l)){printf("%s\n",qdr_last_error());return 1;}
 for(int k=0;k<4;k++){ fflush(stdout); int pid=fork(); if(!pid){ double s=referee_secs(&m,&p,&l[k],msg); printf("%d: %d tasks model %.6f ms referee %.6f ms %+.3f %%\n",k,l[k].n_tasks,l[k].model_secs*1e3,s*1e3,(l[k].model_secs/s-1)*100); fflush(stdout);_exit(0);} int st; waitpid(pid,&st,0); if(st)printf("died %d\n",st);}
}
